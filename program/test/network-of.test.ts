import test from 'ava';
import { networkOf } from '../network-of.ts';

test('one network, however its addresses are written', t => {
  t.is(networkOf('192.0.2.7'), '192.0.2.7');
  t.is(networkOf('::ffff:192.0.2.7'), '192.0.2.7');
  const written = ['2001:db8:0:1::5', '2001:0DB8:0000:0001:ffff::', '2001:db8:0:1:0:0:192.0.2.7'];
  t.deepEqual(new Set(written.map(networkOf)), new Set(['2001:db8:0:1']));
  t.is(networkOf('::1'), '0:0:0:0');
  t.is(networkOf('fe80::1%eth0'), 'fe80:0:0:0');
  t.not(networkOf('2001:db8:0:2::5'), '2001:db8:0:1');
});

test('what is no address stays what it is', t => {
  for (const text of ['', 'unknown', '203.0.113.9:4711']) t.is(networkOf(text), text);
});
