//! Planning and expressions: the only package that names DataFusion.
