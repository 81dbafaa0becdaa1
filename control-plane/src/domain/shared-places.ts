/**
 * Places that accounts share: a number of sockets, files or slots, each held for a while and never
 * taken away. Pure.
 *
 * One rule: an account may take another place while it holds fewer than are left free (Choudhury
 * and Hahne, "Dynamic Queue Length Thresholds in a Shared-Memory Packet Switch", 1998, with a
 * factor of one). One account alone gets half; with n busy accounts each gets one part of n + 1,
 * and one part is left for an account that comes. No account needs to be known beforehand.
 */

/** Whether an account that holds `held` places may take one of the `free` ones. */
export function mayTakePlace(held: number, free: number): boolean {
  return held < free;
}
