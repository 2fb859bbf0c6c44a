class GliderRenderer:
    def __init__(self, *args): pass
