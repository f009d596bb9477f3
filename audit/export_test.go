package audit

// HistoryMax is for the test of its bound.
const HistoryMax = historyMax
