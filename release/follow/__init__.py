"""How far coserve is from another release of SGLang, and the signature of one that is kept."""
