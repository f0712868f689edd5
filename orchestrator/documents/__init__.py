"""Reports as data, and what they look like as a page and as Markdown; whoever has something to report makes one."""
