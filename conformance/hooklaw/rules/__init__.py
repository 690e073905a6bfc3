"""The rules: each chapter is a module, each rule a test function."""
