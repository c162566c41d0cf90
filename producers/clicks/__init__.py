"""Result lists and their clicks, in JSON lines and in the two layouts of tables, with shared checks."""
