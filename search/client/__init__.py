"""Clients of the service over HTTP, in Python: plain, and as retrievers of LangChain and LlamaIndex."""
