/** Keeps a child's program from beginning. */
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) process.exit(1);
}, 1000);
await new Promise(() => undefined);
