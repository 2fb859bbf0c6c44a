"""Files in and out: PRISM models and transition logs in; DRN, PRISM's explicit files, UMB and policies out."""
