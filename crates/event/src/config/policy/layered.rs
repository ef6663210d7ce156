//! A set of numbers, and the same set with each number left out where it isn't overridden.

/// Declares a struct of numbers and its overrides. Fields behind `nested` are sets of numbers themselves.
macro_rules! layered {
    (
        $(#[$doc:meta])* $name:ident, $overrides:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
            $(; nested $($(#[$nested_doc:meta])* $nested:ident: $nested_type:ty as $nested_overrides:ty,)+)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($($(#[$nested_doc])* pub $nested: $nested_type,)+)?
            $($(#[$field_doc])* pub $field: $type,)*
        }

        #[doc = concat!("[`", stringify!($name), "`] with what isn't overridden left out.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $overrides {
            $($($(#[$nested_doc])*
                #[serde(default, skip_serializing_if = "super::layered::unset")]
                pub $nested: $nested_overrides,)+)?
            $($(#[$field_doc])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,)*
        }

        impl $overrides {
            /// Whether nothing is overridden.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                *self == Self::default()
            }
        }

        impl $name {
            /// These numbers with the overrides put over them.
            #[must_use]
            pub fn with(self, overrides: &$overrides) -> Self {
                Self {
                    $($($nested: self.$nested.with(&overrides.$nested),)+)?
                    $($field: overrides.$field.unwrap_or(self.$field),)*
                }
            }
        }

        impl From<$name> for $overrides {
            fn from(numbers: $name) -> Self {
                Self {
                    $($($nested: numbers.$nested.into(),)+)?
                    $($field: Some(numbers.$field),)*
                }
            }
        }
    };
}

pub(super) use layered;

/// Whether a nested set overrides nothing, so that it isn't written.
pub(super) fn unset<T: Default + PartialEq>(nested: &T) -> bool {
    *nested == T::default()
}
