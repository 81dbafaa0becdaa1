/** Imported before a child's program, which so never begins. It ends with its parent. */
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) process.exit(1);
}, 1000);
await new Promise(() => undefined);
