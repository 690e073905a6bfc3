"""The law: one module a chapter, each rule a test function."""
