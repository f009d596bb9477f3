package audit

// UnitHistorySQL is for the test of its plan.
const UnitHistorySQL = unitHistorySQL
