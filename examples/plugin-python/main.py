"""A plugin that repairs JSON invoices whose dates are written as people write them, not as ISO 8601 has them."""

import reprieve_plugin as plugin
from dates import Dates

if __name__ == "__main__":
    plugin.serve("acme/iso-dates", "1.0.2", "Writes dates as ISO 8601.", Dates())
