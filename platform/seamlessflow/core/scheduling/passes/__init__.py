"""What a fleet's machines should do, pass by pass: who may have any, how many, which ones, and when they train."""
