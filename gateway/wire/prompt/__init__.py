"""What formats cannot express of each other's prompts: rules, losses, schemas, names, history."""
