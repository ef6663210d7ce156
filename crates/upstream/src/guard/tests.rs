use super::*;

#[derive(Clone, Copy)]
enum Verdict {
    Fine,
    Private,
    Never,
}

fn check_all(verdict: Verdict, addresses: &[&str]) {
    for text in addresses {
        let address: IpAddr = text.parse().unwrap();
        let (strict, lenient) = (check(address, false), check(address, true));
        match verdict {
            Verdict::Fine => assert_eq!((strict, lenient), (Ok(()), Ok(())), "{text}"),
            Verdict::Private => {
                assert!(matches!(strict, Err(Refused::Private { .. })), "{text}: {strict:?}");
                assert!(strict.unwrap_err().to_string().contains("`allow_private`"));
                assert_eq!(lenient, Ok(()), "{text}");
            }
            Verdict::Never => {
                assert!(matches!(strict, Err(Refused::Never { .. })), "{text}: {strict:?}");
                assert_eq!(lenient, strict, "{text}");
            }
        }
    }
}

#[test]
fn public_addresses_are_fine() {
    check_all(
        Verdict::Fine,
        &[
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ],
    );
}

#[test]
fn private_addresses_need_the_setting() {
    check_all(
        Verdict::Private,
        &[
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "::1",
            "fc00::1",
            "fdff::1",
            "fec0::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "2001:0:1::",
        ],
    );
}

#[test]
fn some_addresses_are_never_dialled() {
    check_all(
        Verdict::Never,
        &[
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::",
            "::ffff:0.0.0.0",
        ],
    );
}
