"""What a mixture of experts does while it decodes and verifies: from routing tables to windows, measures and costs."""
