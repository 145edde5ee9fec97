"""The control socket: who may ask, what can be asked, what is answered."""
