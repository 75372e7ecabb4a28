
Bin0JÒcT÷