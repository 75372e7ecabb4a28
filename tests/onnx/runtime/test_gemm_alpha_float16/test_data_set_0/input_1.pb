
Bin1J@Z@Z