"""The course: one folder a lesson, the format they are written in, and the commands that check, record and print them."""
