/** This machine's addresses: public ones among them are not for callers either. */
import { networkInterfaces } from 'node:os';

export function interfaceAddresses(): Set<string> {
  const interfaces = Object.values(networkInterfaces()).flatMap(list => list ?? []);
  return new Set(interfaces.map(entry => entry.address));
}
