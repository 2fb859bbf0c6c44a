class BettingRenderer:
    def __init__(self, *args): pass
