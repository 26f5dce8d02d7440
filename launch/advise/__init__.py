"""`paceline advise`: record a script, predict every setting, and recommend one."""
