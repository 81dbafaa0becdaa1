import test from 'ava';
import { addressesOf } from '../../../src/http/headers/forwarded-for.ts';

test('a port is cut off, other text is no address', t => {
  const read: Readonly<Record<string, string>> = {
    '203.0.113.9': '203.0.113.9',
    '203.0.113.9:4711': '203.0.113.9',
    '[2001:db8::1]:4711': '2001:db8::1',
    '[2001:db8::1]': '2001:db8::1',
    '2001:db8::1': '2001:db8::1',
    '2001:db8::1:4711': '2001:db8::1:4711',
    '::ffff:203.0.113.9': '::ffff:203.0.113.9',
    '203.0.113.9:4711, 10.1.0.5:80,10.1.0.6': '203.0.113.9, 10.1.0.5, 10.1.0.6',
    ' , 203.0.113.9 ,,': '203.0.113.9',
    '': '',
    unknown: 'unknown',
    _hidden: 'unknown',
    '203.0.113.9:port': 'unknown',
    '203.0.113.9:4711:4712': 'unknown',
    '[203.0.113.9]x, 192.0.2.1': 'unknown, 192.0.2.1',
    '999.0.0.1:1': 'unknown',
    '<script>é\u0001': 'unknown',
  };
  for (const [given, expected] of Object.entries(read)) t.is(addressesOf(given), expected);
});
