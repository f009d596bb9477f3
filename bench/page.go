package main

// page is the page of figures.
func page(_ options, _ []Measure, _ about) string { return "" }
