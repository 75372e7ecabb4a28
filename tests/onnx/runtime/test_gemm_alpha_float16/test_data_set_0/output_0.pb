
Bout0JS{