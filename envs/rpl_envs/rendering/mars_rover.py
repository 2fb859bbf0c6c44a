class MarsRoverRenderer:
    def __init__(self, *args): pass
