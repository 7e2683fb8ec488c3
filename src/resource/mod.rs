//! resource
