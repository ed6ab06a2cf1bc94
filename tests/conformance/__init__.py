"""torch's own tests of ops and modules, run through the artifact."""
