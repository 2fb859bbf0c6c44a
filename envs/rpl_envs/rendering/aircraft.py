class AircraftRenderer:
    def __init__(self, *args): pass
