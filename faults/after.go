package faults

import "time"

// after is the argument of the faults that end a connection: both directions are
// silent meanwhile, and both peers are read.
var after = Arg{Name: "after", Max: time.Minute, Sentence: "from the last byte to the end of the connection"}
