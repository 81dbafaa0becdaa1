/** Whether only this machine reaches a listener on that host. A name but localhost is not looked up. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}
