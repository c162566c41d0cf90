"""Tokens for logins by SASL OAUTHBEARER: fetched, renewed in time, and given to both client libraries."""
