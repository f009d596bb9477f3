// Package baskets reads and makes shopping baskets: text with one basket per
// line, its items separated by commas. A basket is a cart, each item one
// add-to-cart of one unit, and the order of the lines is the order of arrival.
//
// It makes no calls and keeps no state.
package baskets
