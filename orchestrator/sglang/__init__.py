"""What SGLang accepts, refuses, adjusts and reports, release by release."""
