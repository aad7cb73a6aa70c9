"""Single sign-on by OpenID Connect: authorization code with PKCE, one trusted provider."""
