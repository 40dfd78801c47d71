"""The vocabulary that every other room speaks; it knows no wire, no network and no clock."""
