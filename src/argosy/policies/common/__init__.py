"""Parts that several policies share: demands, sizes, progressive filling, marginal gains, speeds, shares of time."""
