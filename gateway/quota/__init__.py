"""What holders of allowances may use, and what it costs: pure, so time is an argument."""
