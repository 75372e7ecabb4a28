
Bout0JÿH€Ë