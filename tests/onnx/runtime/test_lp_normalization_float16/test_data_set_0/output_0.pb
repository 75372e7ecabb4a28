
Bout0Jง9งน*G4G8j: