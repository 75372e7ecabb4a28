
Bin3JÐcS÷