class EngagementRenderer:
    def __init__(self, *args): pass
