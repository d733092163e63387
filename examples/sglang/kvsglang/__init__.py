"""A transfer backend for an engine with SGLang's disaggregation surface, on kvffi."""
