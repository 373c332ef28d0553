//! Ids to text, a piece at a time.
