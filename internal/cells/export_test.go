package cells

// GiveUpWith is GiveUp, with a function that is called after each step.
var GiveUpWith = giveUp
