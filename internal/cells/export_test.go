package cells

// GiveUpWith is GiveUp, which calls after after each of its steps.
var GiveUpWith = giveUp
