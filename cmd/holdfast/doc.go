// Command holdfast is the all-in-one and the operator's tool. It runs the whole
// service beside a private Postgres, demonstrates it under load, and changes
// keys, stocks and lanes.
//
// keys, subscriptions, projections, verify and migrate work on the database that
// DATABASE_URL names; stock and lanes call the API at HOLDFAST_URL with the key
// in HOLDFAST_KEY; run and demo start what they need. `holdfast help` lists all
// commands.
package main
