output "url" {
  description = "Where the API is."
  value       = google_cloud_run_v2_service.api.uri
}

output "connections" {
  description = "The database connections that the programs can need, rollouts included."
  value       = local.connections_most
}
